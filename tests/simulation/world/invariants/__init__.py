"""What must hold in every simulated life, one idea in each module; `judge` asks them all."""
