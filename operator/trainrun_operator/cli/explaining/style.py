"""How the page of `trainrun explain --html` looks, in light and in dark, wide and narrow.

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
.dim,.scale,time{color:var(--dim);font-size:.875rem}
.note,.change{color:var(--stall)}
.bar{display:flex;height:1rem;border-radius:.2rem;overflow:hidden;min-width:2px}
.bar.tall{height:1.6rem}.bar i{display:block;height:100%}
table{border-collapse:collapse;font-size:.9rem;margin-top:.6rem}
td,th{padding:.15rem .9rem .15rem 0;text-align:left}
.sums td:nth-child(n+2){text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
td i{display:inline-block;width:.8em;height:.8em;border-radius:.15em;margin-right:.5em}
.line{display:flex;align-items:center;gap:.5rem;color:inherit;text-decoration:none;padding:.12rem 0}
.line b{flex:0 0 6.2rem;font-weight:400;font-size:.875rem}.line em{flex:0 0 4.2rem;
font-style:normal;font-size:.8rem;color:var(--rework);white-space:nowrap}
.track{flex:1;background:var(--card);border-radius:.2rem;overflow:hidden}
.scale{display:flex;justify-content:space-between;margin-left:6.7rem;margin-right:4.7rem}
.chapter{border:1px solid var(--line);border-radius:.4rem;padding:.7rem .9rem;margin:.7rem 0}
.incident{background:var(--card);border-left:.25rem solid var(--rework);padding:.5rem .7rem}
pre{overflow-x:auto;font-size:.8rem;background:var(--bg);border:1px solid var(--line);padding:.5rem;
margin:.4rem 0 0}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,18rem),1fr));gap:1rem}
figure{margin:0}figcaption{font-size:.9rem;font-weight:600;overflow-wrap:anywhere}
.plot{position:relative;background:var(--card);border-radius:.2rem;padding:1.2rem .4rem}
.plot svg{display:block;width:100%;height:8rem;overflow:visible}
.plot b{position:absolute;left:.4rem;font:400 .75rem system-ui,sans-serif;color:var(--dim)}
.plot b:first-child{top:.1rem}.plot b:last-child{bottom:.1rem}
.plot path{fill:none;stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round;
vector-effect:non-scaling-stroke}
.steps{display:flex;justify-content:space-between;color:var(--dim);font-size:.75rem;margin:0}
.legend{display:flex;flex-wrap:wrap;gap:.2rem .9rem;font-size:.875rem}
.legend i{display:inline-block;width:.8em;height:.8em;border-radius:.15em;margin-right:.35em}
.c0{stroke:var(--rdv)}.c1{stroke:var(--stall)}.c2{stroke:var(--useful)}.c3{stroke:var(--drain)}
.c4{stroke:var(--rework)}.c5{stroke:var(--load)}
i.c0{background:var(--rdv)}i.c1{background:var(--stall)}i.c2{background:var(--useful)}
i.c3{background:var(--drain)}i.c4{background:var(--rework)}i.c5{background:var(--load)}
details{margin:.4rem 0 0}details details{margin-left:.9rem}summary{cursor:pointer;font-size:.9rem}
.useful{background:var(--useful)}.rework{background:var(--rework)}
.checkpoint_stall{background:var(--stall)}.hang{background:var(--hang)}
.drain{background:var(--drain)}.start{background:var(--start)}.rendezvous{background:var(--rdv)}
.load{background:var(--load)}.first_step{background:var(--first)}.queue{background:var(--queue)}
.image{background:var(--image)}.backoff{background:var(--backoff)}.unknown{background:var(--unknown)}
@media(max-width:40rem){.line em{flex-basis:1rem}.line em span{display:none}.scale{margin:0}
.line b{flex-basis:5rem}.chapter{padding:.6rem}.scale span{max-width:45%}}
"""
