"""The gateway: the REST API, the live stream, the web pages, and the read model behind them."""
