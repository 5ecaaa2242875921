"""The timing stage of a job: windows, their calibration, and the checks between them."""
