"""How all pages look, in light and in dark, wide and narrow.

Layer: cli.
"""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#57606a;--line:#d0d7de;--card:#f6f8fa;
--useful:#2da44e;--rework:#cf222e;--stall:#bf8700;--hang:#82071e;--drain:#8250df;--start:#54aeff;
--rdv:#0969da;--load:#1b7c83;--first:#0a3069;--queue:#8c959f;--image:#6e7781;--backoff:#afb8c1;
--unknown:#d8b4a0}
@media(prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--dim:#8d96a0;--line:#30363d;
--card:#161b22;--useful:#3fb950;--rework:#f85149;--stall:#d29922;--hang:#ff7b72;--drain:#a371f7;
--start:#79c0ff;--rdv:#388bfd;--load:#39c5cf;--first:#a5d6ff;--queue:#6e7681;--image:#8b949e;
--backoff:#484f58;--unknown:#9e6a5a}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}
main{max-width:62rem;margin:0 auto;padding:1rem}
h1{margin:0;font-size:1.5rem}h2{font-size:1.15rem;margin:1.6rem 0 .5rem}h3{margin:0;font-size:1rem}
p{margin:.3rem 0}ul{margin:.4rem 0;padding-left:1.2rem}li,p,td,strong{overflow-wrap:anywhere}
header{border-left:.4rem solid var(--dim);padding-left:.8rem}
header.good{border-color:var(--useful)}header.bad{border-color:var(--rework)}
.dim{color:var(--dim);font-size:.875rem}.note{color:var(--stall)}.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.9rem;margin-top:.6rem}
td,th{padding:.15rem .9rem .15rem 0;text-align:left}
.sums td:nth-child(n+2){text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,18rem),1fr));gap:1rem}
figure{margin:0}figcaption{font-size:.9rem;font-weight:600;overflow-wrap:anywhere}
.legend{display:flex;flex-wrap:wrap;gap:.2rem .9rem;font-size:.875rem}
.legend i{display:inline-block;width:.8em;height:.8em;border-radius:.15em;margin-right:.35em}
"""
