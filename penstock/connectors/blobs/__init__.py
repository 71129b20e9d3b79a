"""Where bytes are: local files, URLs, objects of buckets, one file each behind one small interface."""
