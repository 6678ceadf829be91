"""The factory of the VISP paper: nine operators between three sensors and a supervisor."""
