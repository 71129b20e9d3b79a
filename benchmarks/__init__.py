"""What Penstock costs beside what its users would pick instead, on the same data and the same machine."""
