"""For tests of frameworks and of Penstock itself: nothing here is used by a running system."""
