"""``tidegate doctor``: look at a configuration, a running job or a journal, and say what is wrong.

Each module looks in one place and returns what it knows as `JobFacts`, for the checks of
`tidegate.spark.scalability`. `journal` reads what really happened, and reports it directly.
"""
