"""What the page of `trainrun explain --html` looks like beyond the style of all pages.

Layer: cli.
"""

from __future__ import annotations

STYLE = """
.scale,time{color:var(--dim);font-size:.875rem}.change{color:var(--stall)}
.bar{display:flex;height:1rem;border-radius:.2rem;overflow:hidden;min-width:2px}
.bar.tall{height:1.6rem}.bar i{display:block;height:100%}
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
.plot{position:relative;background:var(--card);border-radius:.2rem;padding:1.2rem .4rem}
.plot svg{display:block;width:100%;height:8rem;overflow:visible}
.plot b{position:absolute;left:.4rem;font:400 .75rem system-ui,sans-serif;color:var(--dim)}
.plot b:first-child{top:.1rem}.plot b:last-child{bottom:.1rem}
.plot path{fill:none;stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round;
vector-effect:non-scaling-stroke}
.steps{display:flex;justify-content:space-between;color:var(--dim);font-size:.75rem;margin:0}
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
