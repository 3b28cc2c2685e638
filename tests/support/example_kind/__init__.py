"""The kind ``echo`` of the recipe in docs/adding-things.md: datagrams that a server sends back."""
