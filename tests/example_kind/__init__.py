"""The kind ``echo`` of the recipe in docs/design.md: datagrams that a server sends back."""
