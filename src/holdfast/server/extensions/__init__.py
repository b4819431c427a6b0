"""Routes, mounts and health fields of extensions."""
