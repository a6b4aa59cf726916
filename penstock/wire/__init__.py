"""PURE. MessagePack-RPC: bytes in, messages out; and the declaration of every method."""
