from tests.store.golden import golden

for path, text in golden().items():
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
