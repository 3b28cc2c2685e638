"""Live testbeds and finished runs in a browser (``cellbed ui``) and in a terminal (``cellbed top``)."""
