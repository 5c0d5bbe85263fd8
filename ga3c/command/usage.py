"""The text that `ga3c` prints without a command, or with --help."""

from ga3c.settings.choices import preset_lines

USAGE = f"""usage: ga3c train [--game GAME] [--algorithm a3c|ppo|dqn|dpg] [--preset NAME] [options]
       ga3c train --resume RUN [options]
       ga3c train --config FILE [options] | ga3c train [options] --print-config
       ga3c list games|presets|networks|algorithms|protocols|pretrained
       ga3c runs [options]
       ga3c evaluate RUN [--protocol NAME] [options]
       ga3c play RUN|--pretrained GAME [options]
       ga3c plot|table|report RUN... [options]
       ga3c export RUN --out DIRECTORY|FILE.onnx [options]
       ga3c keys NAME
       ga3c agents --connect tcp://HOST:PORT --key FILE --service FILE [options]
       ga3c scores --games GAME... --out-dir DIRECTORY [options]
       ga3c doctor [--game GAME] [options]
       ga3c benchmark NAME [--game GAME] [options]

train       train an agent, or resume a run
list        names that options accept: games, presets, networks, algorithms, protocols,
            pretrained policies
runs        list runs with game, steps, score and state
evaluate    play whole games with a run's policy, under a named protocol
play        render a video of a game, with score, value and action probabilities
plot        plot curves of runs: score, throughput, queues, lag, waiting, worker counts
table       tabulate the scores of runs beside published ones
report      put scores, curves and videos of runs into one HTML page
export      export a run's policy as a SavedModel or to ONNX
keys        make a key pair, by which the machines of a run authenticate each other
agents      run agents on this machine for a service on another
scores      train, evaluate and tabulate a list of games; can be interrupted and repeated
doctor      find what limits a run on this machine and which setting to change, and try it
benchmark   measure this machine. NAME is
            limits      each part alone: environments, wire, predictions, training
            throughput  the whole service, and where every core-second goes
            sweep       the whole service over worker counts, networks and minimum training batches
            ablation    the whole service, with its ideas added one after another
            a3c         the whole service against A3C without a GPU
            tuning      worker counts tuned from 1/1/1, by annealing and by the paper's walk
            watching    what displaying, logging and checkpointing a run costs
            lanes       the service with thousands of environments, without emulator or model
            learning    training recipes side by side, by steps and by minutes
            peers       score and speed against Stable-Baselines3 and CleanRL
            constant    what a game scores if one action is always played
            replay      in-GPU replay: train-step time by place, cost of adding and of drawing
            fast-dqn    Concurrent Training and Synchronized Execution, on and off
            apex        Ape-X's studies: actors, priorities, recency, epsilons, replay
            machines    agents on another machine: encryption, compression, round trips
            faults      what a run survives: kills, cut links, full disks, hostile peers
            gpu-check   check and measure everything on a machine with a GPU, in ten minutes

train starts from the settings of --preset:
{preset_lines("    ")}

`ga3c help COMMAND`, or `--help` after any command, shows the common options, with units and
defaults; `--help-all` shows all of them.
"""
