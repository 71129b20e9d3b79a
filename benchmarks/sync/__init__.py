"""What copies of checkpoints in an object store cost, beside rclone."""
