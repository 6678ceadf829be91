"""The laboratory: what policies cost on a trace, and what no policy can undercut."""
