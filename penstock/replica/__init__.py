"""Several runs of one pipeline at the same time, which agree on what each transaction is made of."""
