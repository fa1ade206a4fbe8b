"""The style of self-contained HTML pages, which `audit --html` and the examples share. It loads nothing."""

from html import escape

LIGHT = {
    "page": "#fbfbfa",
    "card": "#ffffff",
    "ink": "#1d2129",
    "dim": "#5d6470",
    "line": "#dfe2e6",
    "ledger": "#1f6fd6",
    "naive": "#b35a08",
    "good": "#1a7f4b",
    "bad": "#c4262e",
    "warning": "#8a5a00",
    "quiet": "#6c7480",
    "s3": "#5b6472",
    "on-colour": "#ffffff",
}
"""The colours of the light form, and of print."""
DARK = {
    "page": "#14171c",
    "card": "#1b1f26",
    "ink": "#e7e9ec",
    "dim": "#a2a9b4",
    "line": "#333943",
    "ledger": "#5aa2f5",
    "naive": "#f09a45",
    "good": "#4fc384",
    "bad": "#f2777d",
    "warning": "#e3b341",
    "quiet": "#8b94a1",
    "s3": "#97a1b0",
    "on-colour": "#10141a",
}
"""The colours of the dark form."""
_RULES = """
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, sans-serif;
  overflow-wrap: anywhere; }
main { max-width: 1240px; margin: 0 auto; padding: 40px 20px 80px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0 0 8px; }
h2 { font-size: 21px; line-height: 1.3; margin: 48px 0 6px; }
p { max-width: 76ch; margin: 6px 0 14px; }
.dim { color: var(--dim); }
.verdict { font-size: 19px; font-weight: 600; }
.good { color: var(--good); } .warning { color: var(--warning); } .bad { color: var(--bad); font-weight: 600; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: 12px; margin: 22px 0; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 14px 16px; }
.tile b { display: block; font-size: 26px; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tile span { color: var(--dim); font-size: 14px; }
.card { overflow-x: auto; }
.card svg { min-width: 720px; }
.wide svg { min-width: 1100px; }
table { border-collapse: collapse; width: 100%; font-size: 15px; }
th, td { text-align: left; padding: 7px 12px; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: break-word; }
td.any { overflow-wrap: anywhere; min-width: 18ch; }
td.t, tbody th { white-space: nowrap; }
th { color: var(--dim); font-weight: 600; }
tr:last-child td, tr:last-child th { border-bottom: 0; }
thead tr th, thead tr:last-child th { border-bottom: 1px solid var(--line); }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.key span { display: inline-flex; align-items: center; gap: 7px; margin-right: 20px; font-size: 14px;
  color: var(--dim); }
.key i { width: 14px; height: 14px; border-radius: 3px; display: inline-block; }
svg { display: block; width: 100%; height: auto; font: 13px system-ui, sans-serif; }
svg text.label { fill: var(--ink); } svg text.number, svg text.tick { fill: var(--dim); }
svg text.tick { font-size: 11px; } svg text.dot { font-size: 9.5px; fill: var(--on-colour); pointer-events: none; }
svg text.inside { font-size: 12px; fill: var(--on-colour); pointer-events: none; }
svg .ledger, i.ledger { fill: var(--ledger); background: var(--ledger); }
svg .naive, i.naive { fill: var(--naive); background: var(--naive); }
svg .s3 { fill: var(--s3); }
svg .quiet, svg .sent, svg .copy, svg .late, i.quiet { fill: var(--quiet); background: var(--quiet); }
svg .lost, svg .astray, i.astray { fill: var(--bad); background: var(--bad); }
svg .nothing, i.nothing { fill: transparent; background: transparent; stroke: var(--line);
  border: 1px solid var(--line); }
svg .nothing + text.inside { fill: var(--dim); }
svg .band { stroke: var(--card); stroke-width: 1; } svg .nothing.band { stroke: var(--line); }
svg .lane { stroke: var(--line); } svg .cut { stroke: var(--dim); stroke-dasharray: 3 4; }
.bars { display: grid; gap: 10px; padding: 4px 0; }
.bars > div { display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); gap: 0 14px; align-items: center; }
.bars > div > span { text-align: right; font-size: 14px; }
.bars p { display: flex; align-items: center; gap: 8px; margin: 1px 0; max-width: none; font-size: 14px;
  line-height: 1.2; color: var(--dim); font-variant-numeric: tabular-nums; white-space: nowrap; }
.bars i { height: 15px; min-width: 2px; border-radius: 2px; flex: none; }
.columns svg { min-width: 0; height: 150px; border-bottom: 1px solid var(--line); }
.columns p { display: flex; justify-content: space-between; gap: 16px; max-width: none; margin: 2px 0; font-size: 13px;
  color: var(--dim); }
code, pre { font: 13px/1.5 ui-monospace, monospace; }
pre { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 14px; }
summary { cursor: pointer; }
@media (max-width: 640px) {
  main { padding: 22px 14px 48px; }
  h1 { font-size: 25px; } h2 { margin-top: 34px; }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .tile, .card { padding: 11px 12px; }
  .bars > div { grid-template-columns: minmax(0, 1fr); } .bars > div > span { text-align: left; }
  table.rows, .rows tbody, .rows tr, .rows td, .rows tbody th { display: block; width: auto; }
  .rows thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .rows tr { padding: 9px 0; border-bottom: 1px solid var(--line); }
  .rows tr:last-child { border-bottom: 0; }
  .rows td, .rows tbody th { border: 0; padding: 2px 0; white-space: normal; }
  .rows td.n, .rows td.t { display: inline-block; text-align: left; padding-right: 16px; white-space: normal; }
  .rows td.any { min-width: 0; }
  .rows td[data-label]::before { content: attr(data-label) ": "; color: var(--dim); font-weight: 400; }
  .rows td:empty { display: none; }
}
@media print {
  body { font-size: 12px; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  h2 { margin-top: 22px; break-after: avoid; }
  table { font-size: 11px; } th, td { padding: 5px 7px; } code, pre { font-size: 10.5px; }
  .card { overflow: visible; } .card svg, .wide svg { min-width: 0; }
  .tiles { grid-template-columns: repeat(auto-fit, minmax(120px, 1fr)); }
  tr, .tile, .bars > div, .columns { break-inside: avoid; }
  pre { white-space: pre-wrap; }
}
"""


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


# Print is light in dark mode too: the dark colours are only of screens.
STYLE = (
    f"\n:root {{ color-scheme: light dark; {_variables(LIGHT)} }}\n"
    f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}\n"
    f"@media print {{ :root {{ color-scheme: light; }} }}{_RULES}"
)
"""The content of the page's `style` element."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The page runs no script and loads nothing, even if a text were not escaped."""


def document(title: str, body: str) -> str:
    """Return an HTML page.

    Args:
        title: of the page, as plain text.
        body: the content, as HTML.

    """
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n<main>\n{body}\n</main>\n</html>\n"
    )
