"""Publications reproduced with cellbed, and the accuracy of its replays."""
