"""The APIs of the gateway, each as four pure functions: a request read, a reply written, its events, an error."""
