"""Access control: certificates, mutual TLS, tokens, and their keys in both configurations (docs/security.md)."""
