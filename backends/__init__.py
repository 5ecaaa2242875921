"""One folder per kernel type, behind one interface. Runs inside the sandbox, never in a trusted process."""
