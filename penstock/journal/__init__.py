"""The durable record of what each transaction took in."""
