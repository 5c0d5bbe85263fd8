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

train       train an agent by GA3C, or go on with a run
list        the names that options take: games, presets, networks, algorithms, protocols,
            pretrained policies
runs        list the runs: game, steps, score, state
evaluate    play whole games with what a run has learned, by a named protocol
play        a video of a game, with score, value and action probabilities
plot        curves of runs: score, throughput, queues, lag, who waits, counts
table       score tables of runs, beside what was published
report      one HTML page of all that, with the video
export      what a run has learned as a SavedModel or ONNX
keys        a pair of keys, by which machines of one run know each other
agents      play on this machine for a service on another
scores      train, evaluate and tabulate a list of games, whatever interrupts it
doctor      say what limits a run on this machine and which setting to change, and try it
benchmark   measure this machine. NAME is
            limits      its parts alone: environments, wire, predictions, training
            throughput  the whole service, and where every core-second goes
            sweep       the whole service over counts, networks and minimum training batches
            ablation    the whole service with one of its ideas after another
            a3c         the whole service against A3C on cores alone
            tuning      the counts tuned from 1/1/1, by our annealing and by the paper's walk
            watching    what showing, noting and keeping a run costs
            lanes       the machinery with thousands of environments, without emulator and model
            learning    recipes of learning side by side, by steps and by minutes
            peers       score and speed beside Stable-Baselines3 and CleanRL
            replay      in-GPU replay: a train step's time by place, what adding and drawing cost
            fast-dqn    Concurrent Training and Synchronized Execution, on and off
            apex        Ape-X's studies: actors, priorities, recency, epsilons, replay
            machines    agents of another machine: encryption, compression, round trips
            faults      what a run survives: kills, cut links, full disks, hostile peers
            gpu-check   what a machine with a GPU makes of it all, in ten minutes

Settings of train begin with those of --preset:
{preset_lines("    ")}

`ga3c help COMMAND`, or `--help` after any of them, shows the options that people use, with
units and defaults; `--help-all` shows all of them.
"""
