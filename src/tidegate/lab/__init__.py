"""The laboratory: backtests, the bound in hindsight, and the papers' experiments."""
