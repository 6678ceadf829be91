"""The papers' applications, one module each with a function `application()`."""
