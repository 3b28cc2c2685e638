"""Networks that look at images, with Python around them."""
