"""Run the ``when_filter`` language: its tokenizer, its checks and its sandbox."""
