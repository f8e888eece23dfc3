# What a launcher does in a script file: a rank 0 of a group of its own.
RANK=0 WORLD_SIZE=1 MASTER_PORT=1 python -c "import time; time.sleep(3)"
true
