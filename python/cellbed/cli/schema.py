"""``cellbed schema``: the JSON Schema of scenario files."""


def schema() -> None:
    """Print the JSON Schema of scenario files, for editors that check and complete them."""
    import json

    from cellbed.scenario.json_schema import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
