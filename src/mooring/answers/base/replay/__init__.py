"""Replaying recorded scenarios through the engine, and comparing the answers with the recording."""
