import os
import sys

# Where the environment forbids bytecode, each of a thousand processes would compile the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
