"""Frequent patterns in short texts, the FPD application of the DRS paper."""
