from dataclasses import dataclass
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from agents.messages import OUTCOME, Step
@dataclass(frozen=True)
class EnvironmentConfig:
    game: str = "Pong"
    action_repeat: int = 4
    sticky_actions: float | None = None
    noop_max: int = 30
    fire_on_reset: bool = True
    max_pool: bool = True
    life_loss_terminates: bool = True
    full_action_space: bool = False
    frame_cap: int = 108_000
    frame_size: int = 84
    stack: int | None = None
@dataclass(frozen=True)
class Spaces:
    shape: tuple[int, ...]
    dtype: str
    num_actions: int
    stack: int
    @property
    def is_picture(self): return len(self.shape)>=2
def check(config): pass
def spaces(config):
    e=Environments(config,1)
    return Spaces((84,84),"uint8",int(e.v.single_action_space.n),4)
class Environments:
    def __init__(self,c,n,num_threads=1):
        self.v=AtariVectorEnv(c.game.lower(),n,num_threads=num_threads,max_num_frames_per_episode=c.frame_cap,repeat_action_probability=c.sticky_actions or 0.0,stack_num=1,reward_clipping=False,life_loss_info=c.life_loss_terminates,use_fire_reset=c.fire_on_reset,noop_max=c.noop_max)
        self.fin=np.ones(n,bool); self.ret=np.zeros(n,np.float32); self.len=np.zeros(n,np.int32)
    def reset(self,seed):
        o,i=self.v.reset(seed=seed%2**30)
        return self._out(o,np.zeros(len(o)),np.zeros(len(o),bool),np.zeros(len(o),bool),i)
    def _out(self,o,r,te,tr,i):
        out=np.zeros(len(o),OUTCOME)
        first=self.fin
        self.ret[first]=0; self.len[first]=0
        self.ret+=r; self.len+=~first
        self.fin=tr|(te&(i["lives"]==0))
        out["reward"]=r;out["terminated"]=te;out["truncated"]=tr;out["first"]=first;out["finished"]=self.fin
        out["episode_return"]=self.ret;out["episode_length"]=self.len
        return Step(o[:,0],out)
    def step(self,a):
        return self._out(*self.v.step(a))
    def close(self): self.v.close()
