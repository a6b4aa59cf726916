"""Who gets in: certificates, mutual TLS, tokens, and the keys of both configurations for them (docs/security.md)."""
