"""Safety calibration: answer what only sounds unsafe, refuse what is."""
