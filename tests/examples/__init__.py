"""The examples, as tests."""
