"""Jobs in Redis: admission, queue, record, end."""
