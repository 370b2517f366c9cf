"""The examples of the documents and docstrings run, and generated documents are up to date."""
