"""From Catalyst's optimized plan to a typed plan, and from that to incremental rules."""
