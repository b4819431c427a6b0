"""Guards and effects of extensions, in the transaction of the transition they belong to."""
