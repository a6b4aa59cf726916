"""Why the master decides as it does: a job's place and what it lacks; a round over a recorded state, step by step."""
