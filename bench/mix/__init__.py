"""The same real work, arriving at the same times, under plain Linux, batch systems and Penstock."""
