"""Orion (notebooks 05 to 07): agent, role-play, teacher, judge, reward, and the trainings made of them."""
