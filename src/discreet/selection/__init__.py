"""Choose among models with the cost of choosing inside the promise."""
