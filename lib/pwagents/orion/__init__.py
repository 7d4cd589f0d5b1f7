"""Orion (notebooks 05 to 08): agent, role-play, teacher, judge, reward, and the trainings made of them."""
