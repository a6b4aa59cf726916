"""Explanations of the master's decisions: a job's place and missing resources; a recorded round, step by step."""
