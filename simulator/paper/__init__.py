"""What the papers claim, tried here: ``CLAIMS`` of one module per paper, and the page that comes of them."""
