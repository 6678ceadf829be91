"""Logos in the frames of a video, the VLD application of the DRS paper."""
