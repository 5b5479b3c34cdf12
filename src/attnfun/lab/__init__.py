"""The laboratory: studies, suites, the list of claims, the demo."""
